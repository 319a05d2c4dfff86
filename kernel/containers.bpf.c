// Reports what the kernel does with the watched containers: one record for each CFS period, and one each time that
// a memory limit is hit, before anything is killed.
//
// For: any kernel with BTF, 5.8 or newer, cgroup v1 and v2, loaded through libbpf or through bcc. Only the fields
// that are read here are declared. libbpf finds where they are in the running kernel (CO-RE); for bcc the loader
// looks their offsets up and defines OWNER_FIELD for each FIELD. Not for: deciding, or holding tasks.
// A container is known by the id of its cgroup, which is its directory's inode number.
// Sources: kernel/sched/{fair,core,sched.h}, mm/{memcontrol,oom_kill}.c of Linux 6.1.

#define NO_QUOTA (~0ULL)
#define MAX_GROUPS 16384
#define PERIODS_BYTES (1 << 20)
#define PRESSURES_BYTES (1 << 16)

#ifdef BCC
#define list_head own_list_head	// bcc includes headers of the kernel that declare some of these in full
#define STRUCT(name) struct name { union {
#define FIELD(owner, type, name) struct { char before_##name[owner##_##name]; type name; } __attribute__((packed));
#define END }; };
#define READ(from, field) ({ typeof((from)->field) value; \
	bpf_probe_read_kernel(&value, sizeof(value), &(from)->field); value; })
#define OFFSET(owner, field) owner##_##field
#define ON_ENTRY KFUNC_PROBE
#else
#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define STRUCT(name) struct name {
#define FIELD(owner, type, name) type name;
#define END } __attribute__((preserve_access_index));
#define READ BPF_CORE_READ
#define OFFSET(owner, field) bpf_core_field_offset(struct owner, field)
#define ON_ENTRY(function, argument) SEC("fentry/" #function) int BPF_PROG(function, argument)
#define BPF_HASH(name, key_type, value_type, entries) struct { \
	__uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, entries); \
	__type(key, key_type); __type(value, value_type); } name SEC(".maps")
#define BPF_ARRAY(name, value_type, entries) struct { \
	__uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, entries); \
	__type(key, __u32); __type(value, value_type); } name SEC(".maps")
#define BPF_RINGBUF_OUTPUT(name, pages) struct { \
	__uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, (pages) << 12); } name SEC(".maps")
#endif

STRUCT(kernfs_node) FIELD(kernfs_node, __u64, id) END
STRUCT(cgroup) FIELD(cgroup, struct kernfs_node *, kn) END
STRUCT(cgroup_subsys_state) FIELD(cgroup_subsys_state, struct cgroup *, cgroup) END
STRUCT(list_head) FIELD(list_head, struct list_head *, next) END
STRUCT(timerqueue_node) FIELD(timerqueue_node, __s64, expires) END
STRUCT(hrtimer) FIELD(hrtimer, struct timerqueue_node, node) END
STRUCT(cfs_bandwidth)
	FIELD(cfs_bandwidth, __s64, period)
	FIELD(cfs_bandwidth, __u64, quota)
	FIELD(cfs_bandwidth, __u64, runtime)
	FIELD(cfs_bandwidth, __u64, burst)
	FIELD(cfs_bandwidth, struct hrtimer, period_timer)
	FIELD(cfs_bandwidth, struct list_head, throttled_cfs_rq)
	FIELD(cfs_bandwidth, int, nr_periods)
	FIELD(cfs_bandwidth, int, nr_throttled)
END
STRUCT(task_group)
	FIELD(task_group, struct cgroup_subsys_state, css)
	FIELD(task_group, struct cfs_bandwidth, cfs_bandwidth)
END
STRUCT(page_counter)
	FIELD(page_counter, struct { long counter; }, usage)
	FIELD(page_counter, unsigned long, max)
END
STRUCT(mem_cgroup)
	FIELD(mem_cgroup, struct cgroup_subsys_state, css)
	FIELD(mem_cgroup, struct page_counter, memory)
END
STRUCT(task_struct) FIELD(task_struct, int, tgid) END
STRUCT(oom_control)
	FIELD(oom_control, struct mem_cgroup *, memcg)
	FIELD(oom_control, struct task_struct *, chosen)
END

// The layouts that kernel/records.py reads; all times in nanoseconds of CLOCK_MONOTONIC.
struct period {
	__u64 id, end_ns, quota_ns, unused_ns, used_ns;
	__u32 nr_periods, nr_throttled;	// as in cpu.stat, without the period that ends now
	__u32 throttled, elapsed;	// elapsed: periods that end now, more than 1 where the timer was late
};
enum { UNDER_OOM, KILL };
struct pressure {
	__u64 id, at_ns, limit_pages, usage_pages;
	__u32 kind, pid;	// pid: the process that asked for memory, or that is killed
};

// The runtime of a watched group: its pool at the period's start, and the runtime that quota writes added since.
struct purse { __u64 start_ns, added_ns, known; };

BPF_HASH(watched, __u64, struct purse, MAX_GROUPS);
BPF_RINGBUF_OUTPUT(periods, PERIODS_BYTES >> 12);
BPF_RINGBUF_OUTPUT(pressures, PRESSURES_BYTES >> 12);	// separate, so that many periods displace none of these
BPF_ARRAY(lost, __u64, 2);	// numbers of records for which the ring buffer was full: [0] periods, [1] pressures

static inline void count_lost(__u32 which)
{
	__u64 *count = bpf_map_lookup_elem(&lost, &which);

	if (count)
		__sync_fetch_and_add(count, 1);
}

static inline __u64 id_of(struct cgroup *cgroup)
{
	struct kernfs_node *node = READ(cgroup, kn);

	return READ(node, id);
}

static inline struct purse *purse_of(struct cfs_bandwidth *pool, __u64 *id)
{
	struct task_group *group = (void *)pool - OFFSET(task_group, cfs_bandwidth);

	*id = id_of(READ(group, css.cgroup));
	return bpf_map_lookup_elem(&watched, id);
}

// Returns the pool after a refill that finds left_ns in it (__refill_cfs_bandwidth_runtime).
static inline __u64 refilled_ns(struct cfs_bandwidth *pool, __u64 left_ns, __u64 quota_ns)
{
	__u64 most_ns = quota_ns + READ(pool, burst);

	return left_ns + quota_ns < most_ns ? left_ns + quota_ns : most_ns;
}

// Called as a period ends, before the pool is refilled.
ON_ENTRY(sched_cfs_period_timer, struct hrtimer *timer)
{
	struct cfs_bandwidth *pool = (void *)timer - OFFSET(cfs_bandwidth, period_timer);
	__u64 id, quota_ns = READ(pool, quota);
	struct purse *purse = purse_of(pool, &id);
	struct period *record;
	void *head;
	__s64 left_ns, used_ns, late_ns, period_ns;

	if (!purse || quota_ns == NO_QUOTA)
		return 0;
	// A CPU that took a slice before the last refill may have returned it since. The pool then has more than its
	// quota (__return_cfs_rq_runtime). The last period counted too much as used, so this one or the next ones
	// count less. The refill drops the part above the quota and the burst.
	left_ns = READ(pool, runtime);
	used_ns = (purse->known ? purse->start_ns + purse->added_ns : quota_ns) - left_ns;
	purse->start_ns = refilled_ns(pool, left_ns, quota_ns) + (used_ns < 0 ? used_ns : 0);
	purse->added_ns = 0;
	purse->known = 1;
	record = bpf_ringbuf_reserve(&periods, sizeof(*record), 0);
	if (!record) {
		count_lost(0);
		return 0;
	}
	head = (void *)pool + OFFSET(cfs_bandwidth, throttled_cfs_rq);
	record->id = id;
	record->end_ns = bpf_ktime_get_ns();
	record->quota_ns = quota_ns;
	record->unused_ns = left_ns <= 0 ? 0 : left_ns < (__s64)quota_ns ? left_ns : quota_ns;
	record->used_ns = used_ns > 0 ? used_ns : 0;
	record->nr_periods = READ(pool, nr_periods);
	record->nr_throttled = READ(pool, nr_throttled);
	record->throttled = (void *)READ(pool, throttled_cfs_rq.next) != head;
	late_ns = record->end_ns - READ(timer, node.expires);
	period_ns = READ(pool, period);
	record->elapsed = late_ns > 0 && period_ns > 0 ? 1 + (__u64)late_ns / (__u64)period_ns : 1;
	bpf_ringbuf_submit(record, 0);
	return 0;
}

// Inlined where periods end, so that this is called only when a quota is written.
ON_ENTRY(__refill_cfs_bandwidth_runtime, struct cfs_bandwidth *pool)
{
	__u64 id, left_ns, quota_ns = READ(pool, quota);
	struct purse *purse = purse_of(pool, &id);

	if (!purse)
		return 0;
	if (quota_ns == NO_QUOTA) {
		purse->known = 0;	// without a quota, runtime is not taken from the pool
		return 0;
	}
	left_ns = READ(pool, runtime);
	purse->added_ns += refilled_ns(pool, left_ns, quota_ns) - left_ns;
	return 0;
}

static inline void report(struct mem_cgroup *group, __u32 kind, __u32 pid)
{
	__u64 id = id_of(READ(group, css.cgroup));
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
	record->limit_pages = READ(group, memory.max);
	record->usage_pages = READ(group, memory.usage.counter);
	record->kind = kind;
	record->pid = pid;
	bpf_ringbuf_submit(record, 0);
}

ON_ENTRY(mem_cgroup_mark_under_oom, struct mem_cgroup *group)
{
	report(group, UNDER_OOM, bpf_get_current_pid_tgid() >> 32);
	return 0;
}

ON_ENTRY(oom_kill_process, struct oom_control *control)
{
	struct mem_cgroup *group = READ(control, memcg);
	struct task_struct *chosen = READ(control, chosen);

	if (group)
		report(group, KILL, READ(chosen, tgid));
	return 0;
}

#ifndef BCC
char LICENSE[] SEC("license") = "GPL";
#endif
