mod discover;
mod plugin;
