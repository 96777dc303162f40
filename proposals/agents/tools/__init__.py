"""What the agents may do: look at one run, price configurations of it, and read what is known.

No tool writes, sends or runs anything.  Approving, adding and launching are a person's, through pages and API that ask
the server for the right to; whatever a text says, an agent cannot.
"""
