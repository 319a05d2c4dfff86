// Applies tunnel rules on a representor. A frame whose destination MAC address has a rule leaves by VXLAN at once,
// without the bridge. Every other frame goes on to the bridge.
//
// For: a host whose kernel has no flower or tunnel_key (docs/decisions/0021). It is attached to the ingress of
// each representor (clsact, direct action). Not for: receiving, which the tenant's own VXLAN device does. Each
// owner of rules has its own program and maps.
// Sources: linux/bpf.h (bpf_skb_set_tunnel_key, bpf_redirect), THORN-ML, section 2.

#include <linux/types.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

// The layouts that kernel/tunnel.py writes and reads.
struct key {
	__u32 device;	// of the representor
	__u8 mac[ETH_ALEN];
	__u16 unused;
};
struct rule {
	__u32 vni, remote;	// remote: the VTEP's IPv4 address, in the machine's byte order
	__u32 action, handle;
	__u64 cookie;
};
struct way_out {
	__u32 device;	// VXLAN without a VNI of its own (external), 0: nothing leaves
	__u32 local;	// the VTEP's IPv4 address of this host, in the machine's byte order
};
enum { HIT, MISS, COUNTS };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);	// set when it is loaded
	__type(key, struct key);
	__type(value, struct rule);
} tunnel_rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct way_out);
} tunnel_way_out SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} tunnel_frames SEC(".maps");

static int on(__u32 which, int verdict)
{
	__u64 *count = bpf_map_lookup_elem(&tunnel_frames, &which);

	if (count)
		++*count;
	return verdict;
}

SEC("tc")
int tunnel(struct __sk_buff *frame)
{
	__u32 zero = 0;
	struct ethhdr *header = (void *)(long)frame->data;
	struct way_out *out = bpf_map_lookup_elem(&tunnel_way_out, &zero);
	struct bpf_tunnel_key tunnel = {};
	struct key key = { .device = frame->ifindex };
	struct rule *rule;

	if (!out || !out->device || (void *)(header + 1) > (void *)(long)frame->data_end)
		return TC_ACT_UNSPEC;
	__builtin_memcpy(key.mac, header->h_dest, ETH_ALEN);
	rule = bpf_map_lookup_elem(&tunnel_rules, &key);
	if (!rule)
		return on(MISS, TC_ACT_UNSPEC);
	tunnel.tunnel_id = rule->vni;
	tunnel.remote_ipv4 = rule->remote;
	tunnel.local_ipv4 = out->local;
	tunnel.tunnel_ttl = 64;
	if (bpf_skb_set_tunnel_key(frame, &tunnel, sizeof(tunnel), BPF_F_ZERO_CSUM_TX))
		return on(MISS, TC_ACT_UNSPEC);
	return on(HIT, bpf_redirect(out->device, 0));
}

char LICENSE[] SEC("license") = "GPL";
