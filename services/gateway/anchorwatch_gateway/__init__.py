"""The gateway: the HTTP face of the mesh; holds no truth."""
