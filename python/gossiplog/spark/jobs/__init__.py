"""Jobs over logs: verify, reconcile, analyze, ingest, materialize, sweep."""
