"""The agent's HTTP on its unix socket; `lumbridge_compute.client` is the other side."""
