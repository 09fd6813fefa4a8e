"""What the scripts of a checkout ask an installed release: is it whole, and did a restart hold."""
