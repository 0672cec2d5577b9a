#![doc = "Placeholder."]
