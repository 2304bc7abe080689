//! The runtime: starts, decides, cancels; one driver task per run that is awake.
