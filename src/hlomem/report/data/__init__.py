"""Reports as plain data, before anybody draws them."""
