"""The documents panel: uploads, jobs, removal."""
