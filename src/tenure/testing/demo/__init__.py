"""`make demo`: real work contends for one declared card, and every promise is checked from the records afterwards."""
