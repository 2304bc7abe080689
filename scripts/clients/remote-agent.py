"""Delegates from aye to an agent that an SDK serves: its question is one here, and the answer goes back to its task.
`remote-agent.py AYE AYE_HOME -- COMMAND…`; the command prints the agent's URL."""
import json
import os
import subprocess
import sys

aye, home, dashes, *command = sys.argv[1:]
assert dashes == "--"
server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
problems = []


def run(*args):
    return subprocess.run([aye, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, cwd=os.path.join(os.path.dirname(home), "work"))


try:
    url = server.stdout.readline().strip()
    agents = os.path.join(home, "config", "agents")
    with open(os.path.join(agents, "painter.md"), "w") as file:
        file.write(f"---\ndescription: Paints.\nendpoint:\n  backend: a2a\n  base_url: {url}\n---\n")
    with open(os.path.join(agents, "lead.md"), "w") as file:
        file.write("---\ndescription: Leads.\ndelegates: [painter]\n---\nYou lead.\n")
    with open(os.path.join(home, "config", "permissions.yaml"), "w") as file:
        file.write("rules: [{tool: agent_run_painter, behavior: allow}]\n")
    asked = run("-p", "[[run:painter]] paint the shed", "--agent", "lead", "--on-ask", "suspend")
    listed = run("approvals", "list", "--json")
    questions = json.loads(listed.stdout)
    if asked.returncode != 3 or len(questions) != 1 or "Which colour?" not in listed.stdout:
        problems.append(f"no question came: {asked.returncode}: {asked.stdout}\n{listed.stdout}")
    else:
        question = questions[0]
        name = question.get("id") or question["ticket"]["suspension"]["id"]
        answered = run("answer", name, json.dumps({"answer": "green"}), "--resume")
        if answered.returncode:
            problems.append(f"the answer failed: {answered.returncode}: {answered.stdout}")
        exported = run("threads", "list", "--json").stdout
        if "It is done." not in answered.stdout:
            problems.append(f"the run did not end: {answered.stdout}\n{exported}")
        told = run("audit", "--json").stdout + answered.stdout
        tasks = run("tasks", "list", "--all", "--json")
        if json.loads(tasks.stdout)[0]["task_status"] != "completed":
            problems.append(f"the task is not complete: {tasks.stdout}\n{told[-1000:]}")
finally:
    server.kill()
print({"problems": problems})
sys.exit(1 if problems else 0)
