"""From a service graph as text to the request-level twin's workload: applications, arrivals, profiling."""
