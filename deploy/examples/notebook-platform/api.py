# Runs the application "api".
import subprocess

subprocess.run(["./api"], check=True)
