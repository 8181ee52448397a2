"""Stage 3: by which route a page is fetched. Reading order:

ladder.py        which route a page should take, and what its result teaches (pure)
router.py        one page's route over the ladder; site_memory.py: what this process remembers of sites
budget.py        what routes cost, and the limits on it
blocks.py        is this the page, or a block in its place? block_signs.py: the table of signs
contract.py      what all workers share: learned routes and budgets
proxies/         pools of proxies: rotation, health, bans
"""
