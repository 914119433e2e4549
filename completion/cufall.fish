# Completion of cufall for fish: what the installed cufall itself says.
_CUFALL_COMPLETE=fish_source cufall 2>/dev/null | source
