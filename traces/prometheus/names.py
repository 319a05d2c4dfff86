"""Names of the metrics that are read.

For: the readers and the client. The names are those of cAdvisor (in the kubelet) and kube-state-metrics 2.
"""

CPU = "container_cpu_usage_seconds_total"
MEMORY = "container_memory_working_set_bytes"
PERIODS = "container_cpu_cfs_periods_total"
THROTTLED_PERIODS = "container_cpu_cfs_throttled_periods_total"
THROTTLED_S = "container_cpu_cfs_throttled_seconds_total"

CPU_SEEN = f"timestamp({CPU})"
"""Times at which the samples of CPU were taken. A server answers with its last sample at every step, however
old."""

QUOTA, PERIOD, SHARES = "container_spec_cpu_quota", "container_spec_cpu_period", "container_spec_cpu_shares"
MEMORY_LIMIT = "container_spec_memory_limit_bytes"
STARTED = "container_start_time_seconds"
OOM_EVENTS = "container_oom_events_total"

REQUESTS, LIMITS = "kube_pod_container_resource_requests", "kube_pod_container_resource_limits"
RESTARTS = "kube_pod_container_status_restarts_total"
LAST_REASON = "kube_pod_container_status_last_terminated_reason"

USAGE = (CPU, CPU_SEEN, MEMORY, PERIODS, THROTTLED_PERIODS)
"""Metrics that change from sample to sample, requested at every step."""

SPECIFICATIONS = (QUOTA, PERIOD, SHARES, MEMORY_LIMIT, STARTED, OOM_EVENTS)
"""Metrics of cAdvisor about a container's settings, which rarely change."""

STATE = (REQUESTS, LIMITS, RESTARTS, LAST_REASON)
"""Metrics of kube-state-metrics about a container's state, which rarely change."""

READ = frozenset((*USAGE, THROTTLED_S, *SPECIFICATIONS, *STATE))
"""Metrics whose values are read; a file may have any others beside them."""
