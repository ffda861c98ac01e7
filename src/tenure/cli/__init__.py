"""The voice: one file a verb, output on stdout, chatter on stderr, nothing heavy before it is needed.

A door like any other: it changes the world through the platform's REST interface alone, and imports no other door.
"""
