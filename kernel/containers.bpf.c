// What the kernel tells of the containers that are watched: one record per CFS period, and each time that
// a memory limit is hit, before anything is killed.
//
// For: any kernel with BTF, 5.8 or newer, cgroup v1 and v2: only the fields read here are declared, and libbpf
// finds where they are in the kernel that it loads this into (CO-RE). Not for: deciding, or holding anyone.
// A container is known by its cgroup's id, which is its directory's inode number.
// Sources: kernel/sched/{fair,core,sched.h}, mm/{memcontrol,oom_kill}.c of Linux 6.1.

#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define OWN_LAYOUT __attribute__((preserve_access_index))
#define NO_QUOTA (~0ULL)
#define MAX_GROUPS 16384

struct kernfs_node { __u64 id; } OWN_LAYOUT;
struct cgroup { struct kernfs_node *kn; } OWN_LAYOUT;
struct cgroup_subsys_state { struct cgroup *cgroup; } OWN_LAYOUT;
struct list_head { struct list_head *next; } OWN_LAYOUT;
struct timerqueue_node { __s64 expires; } OWN_LAYOUT;
struct hrtimer { struct timerqueue_node node; } OWN_LAYOUT;
struct cfs_bandwidth {
	__s64 period;
	__u64 quota, runtime, burst;
	struct hrtimer period_timer;
	struct list_head throttled_cfs_rq;
	int nr_periods, nr_throttled;
} OWN_LAYOUT;
struct task_group {
	struct cgroup_subsys_state css;
	struct cfs_bandwidth cfs_bandwidth;
} OWN_LAYOUT;
struct page_counter { struct { long counter; } usage; unsigned long max; } OWN_LAYOUT;
struct mem_cgroup {
	struct cgroup_subsys_state css;
	struct page_counter memory;
} OWN_LAYOUT;
struct task_struct { int tgid; } OWN_LAYOUT;
struct oom_control {
	struct mem_cgroup *memcg;
	struct task_struct *chosen;
} OWN_LAYOUT;

// The layouts that kernel/records.py reads; all times in nanoseconds of CLOCK_MONOTONIC.
struct period {
	__u64 id, end_ns, quota_ns, unused_ns, used_ns;
	__u32 nr_periods, nr_throttled;	// as in cpu.stat, without the period that ends now
	__u32 throttled, elapsed;	// elapsed: periods that end now, more than 1 where the timer was late
};
enum { UNDER_OOM, KILL };
struct pressure {
	__u64 id, at_ns, limit_pages, usage_pages;
	__u32 kind, pid;	// pid: who asked for memory, or who is killed
};

// What a watched group had to spend: its pool at the period's start, and what quota writes put in since.
struct purse { __u64 start_ns, added_ns, known; };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_GROUPS);
	__type(key, __u64);
	__type(value, struct purse);
} watched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} periods SEC(".maps");

// Apart from the periods, so that a flood of those never costs one of these.
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} pressures SEC(".maps");

// Records that found their ring buffer full: [0] periods, [1] pressures.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

static void count_lost(__u32 which)
{
	__u64 *count = bpf_map_lookup_elem(&lost, &which);

	if (count)
		__sync_fetch_and_add(count, 1);
}

static struct purse *purse_of(struct cfs_bandwidth *pool, __u64 *id)
{
	struct task_group *group = (void *)pool - bpf_core_field_offset(struct task_group, cfs_bandwidth);

	*id = BPF_CORE_READ(group, css.cgroup, kn, id);
	return bpf_map_lookup_elem(&watched, id);
}

// What a refill makes of `left` (__refill_cfs_bandwidth_runtime).
static __u64 refilled_ns(struct cfs_bandwidth *pool, __u64 left_ns, __u64 quota_ns)
{
	__u64 most_ns = quota_ns + BPF_CORE_READ(pool, burst);

	return left_ns + quota_ns < most_ns ? left_ns + quota_ns : most_ns;
}

// Called as a period ends, before the pool is refilled.
SEC("fentry/sched_cfs_period_timer")
int BPF_PROG(cfs_period, struct hrtimer *timer)
{
	struct cfs_bandwidth *pool = (void *)timer - bpf_core_field_offset(struct cfs_bandwidth, period_timer);
	__u64 id, quota_ns = BPF_CORE_READ(pool, quota);
	struct purse *purse = purse_of(pool, &id);
	struct period *record;
	void *head;
	__s64 left_ns, used_ns, late_ns, period_ns;

	if (!purse || quota_ns == NO_QUOTA)
		return 0;
	left_ns = BPF_CORE_READ(pool, runtime);
	used_ns = (purse->known ? purse->start_ns + purse->added_ns : quota_ns) - left_ns;
	purse->start_ns = refilled_ns(pool, left_ns, quota_ns);
	purse->added_ns = 0;
	purse->known = 1;
	record = bpf_ringbuf_reserve(&periods, sizeof(*record), 0);
	if (!record) {
		count_lost(0);
		return 0;
	}
	head = (void *)pool + bpf_core_field_offset(struct cfs_bandwidth, throttled_cfs_rq);
	record->id = id;
	record->end_ns = bpf_ktime_get_ns();
	record->quota_ns = quota_ns;
	record->unused_ns = left_ns > 0 ? left_ns : 0;
	record->used_ns = used_ns > 0 ? used_ns : 0;
	record->nr_periods = BPF_CORE_READ(pool, nr_periods);
	record->nr_throttled = BPF_CORE_READ(pool, nr_throttled);
	record->throttled = (void *)BPF_CORE_READ(pool, throttled_cfs_rq.next) != head;
	late_ns = record->end_ns - BPF_CORE_READ(timer, node.expires);
	period_ns = BPF_CORE_READ(pool, period);
	record->elapsed = late_ns > 0 && period_ns > 0 ? 1 + (__u64)late_ns / (__u64)period_ns : 1;
	bpf_ringbuf_submit(record, 0);
	return 0;
}

// Inlined where periods end, so that this is called only when a quota is written.
SEC("fentry/__refill_cfs_bandwidth_runtime")
int BPF_PROG(cfs_refill, struct cfs_bandwidth *pool)
{
	__u64 id, left_ns, quota_ns = BPF_CORE_READ(pool, quota);
	struct purse *purse = purse_of(pool, &id);

	if (!purse)
		return 0;
	if (quota_ns == NO_QUOTA) {
		purse->known = 0;	// what is spent without a quota is not taken from the pool
		return 0;
	}
	left_ns = BPF_CORE_READ(pool, runtime);
	purse->added_ns += refilled_ns(pool, left_ns, quota_ns) - left_ns;
	return 0;
}

static void report(struct mem_cgroup *group, __u32 kind, __u32 pid)
{
	__u64 id = BPF_CORE_READ(group, css.cgroup, kn, id);
	struct pressure *record;

	if (!bpf_map_lookup_elem(&watched, &id))
		return;
	record = bpf_ringbuf_reserve(&pressures, sizeof(*record), 0);
	if (!record) {
		count_lost(1);
		return;
	}
	record->id = id;
	record->at_ns = bpf_ktime_get_ns();
	record->limit_pages = BPF_CORE_READ(group, memory.max);
	record->usage_pages = BPF_CORE_READ(group, memory.usage.counter);
	record->kind = kind;
	record->pid = pid;
	bpf_ringbuf_submit(record, 0);
}

SEC("fentry/mem_cgroup_mark_under_oom")
int BPF_PROG(memcg_under_oom, struct mem_cgroup *group)
{
	report(group, UNDER_OOM, bpf_get_current_pid_tgid() >> 32);
	return 0;
}

SEC("fentry/oom_kill_process")
int BPF_PROG(memcg_kill, struct oom_control *control)
{
	struct mem_cgroup *group = BPF_CORE_READ(control, memcg);

	if (group)
		report(group, KILL, BPF_CORE_READ(control, chosen, tgid));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
