mod plugin;
mod pure;
