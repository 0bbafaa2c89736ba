"""What pages ask with: controls, lessons, the tour, tables, uploads, progress, and Export."""
