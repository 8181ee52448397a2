"""Stage 4: from a request to a response, politely and within limits. `Transport` (contract.py) has one method."""
