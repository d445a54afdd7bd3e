"""`gossiplog network`: real peers on this machine."""
