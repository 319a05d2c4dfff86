"""Hosts and ToRs as network namespaces with FRR, VXLAN and tc, their faults, and measurements on them."""
