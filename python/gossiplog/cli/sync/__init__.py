"""`gossiplog sync`: both logs get what the other holds."""
