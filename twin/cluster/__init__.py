"""The cluster twin: jobs on servers with GPUs in virtual time, scheduled by control.scheduler."""
