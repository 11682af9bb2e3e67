"""What is said about a run: terminal text, the evidence document, JUnit properties, one HTML file."""
