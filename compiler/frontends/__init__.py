"""Front ends: each reads programs of one source format and makes graph IR from them."""
