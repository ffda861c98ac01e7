"""The conductor: the only room that knows everyone below.

`app.Platform` is the composition root; `verbs` change the world, `views` look at it, and the loops of `conductor` carry
out what the engine decides.  Doors call verbs and views and nothing else.
"""
