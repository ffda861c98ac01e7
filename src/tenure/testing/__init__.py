"""The gym: what others need to test a backend of their own, and what draws the pages that come from tables."""
