"""`cufall verify`: work whose counters are known by arithmetic, and what this GPU's counters made of it."""
