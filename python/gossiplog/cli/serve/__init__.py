"""`gossiplog serve`: a hub, a peer of a mesh, or both."""
