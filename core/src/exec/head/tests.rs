//! Heads and admission, through the public functions.
