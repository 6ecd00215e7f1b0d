"""Pages from the web: what may be reached, one safe fetch, robots.txt, and the walk through a site."""
