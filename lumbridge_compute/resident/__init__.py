"""The children of the resident agent, one job each; `lumbridge_compute.agent` is their tree."""
