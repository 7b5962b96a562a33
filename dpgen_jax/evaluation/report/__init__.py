"""HTML pages about releases: the report on one, the comparison of several, and the private page."""
