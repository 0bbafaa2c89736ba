"""Speed beside the peers: every number is a ratio within one run, taken in interleaved rounds."""
