"""The gateway: stable TCP addresses in front of whatever model runs.

From the bottom: `pipes` and `engine` know descriptors, `side` moves the bytes of one direction,
`connection` joins two sides, `acceptor` takes clients, `gateway` is the policy of one address,
`driver` runs them all as one trio task.  Only `driver` knows trio.
"""
