//! Models: the genai executor, retry, the scripted and the demo model.
