"""Space on the disks that the application writes to; knows no Django."""
