"""A whole node to look at: the embedded model server and the guided tour."""
