"""Messages in and out of a log: `gossiplog append`, `read`, `show`, `import`, `export`."""
