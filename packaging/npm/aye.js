#!/usr/bin/env node
// Starts the program of this machine's package.
"use strict";
const { spawn } = require("node:child_process");

const glibc = process.report?.getReport?.().header.glibcVersionRuntime;
const name = `${process.platform}-${process.arch}`;
// A machine with a glibc that is too old runs the static program.
const isOld = glibc !== undefined && glibc.split(".").map(Number).reduce((a, b) => a * 1000 + b) < 2028;
const order = glibc === undefined || isOld ? [`${name}-musl`, name] : [name, `${name}-musl`];

let program;
for (const platform of order) {
  try {
    program = require.resolve(`aye-cli-${platform}/bin/aye`);
    break;
  } catch {
    // The package manager left this one out.
  }
}
if (program === undefined) {
  console.error(`aye: there is no package for ${name}, or it was left out (npm install --include=optional)`);
  process.exit(1);
}
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
child.on("error", (error) => {
  console.error(`aye: ${program} cannot be started: ${error.message}`);
  process.exit(1);
});
// Ctrl-C reaches the program from the terminal; what is sent to this process alone is passed on.
process.on("SIGINT", () => {});
for (const signal of ["SIGTERM", "SIGHUP", "SIGQUIT"]) process.on(signal, () => child.kill(signal));
child.on("exit", (code, signal) => {
  if (signal === null) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
