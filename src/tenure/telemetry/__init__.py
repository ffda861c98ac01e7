"""The senses: which cards there are, what they hold, and whose process holds it.  Reads only; decides nothing."""
