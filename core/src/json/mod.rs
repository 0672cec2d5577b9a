//! JSON: one reader and one writer on every target.
