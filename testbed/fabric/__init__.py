"""Hosts and ToRs as network namespaces with FRR, VXLAN and tc, and what is done to them."""
