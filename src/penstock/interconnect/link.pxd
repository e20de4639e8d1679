# Types for the compiler; see CONTRIBUTING.md.
