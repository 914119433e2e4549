# Completion of cufall for bash: what the installed cufall itself says.
eval "$(_CUFALL_COMPLETE=bash_source cufall 2>/dev/null)"
