"""What programs coordinate with: locks, elections, barriers, counters, values, groups and item queues.

They are reached through an App: `app.lock("payroll")`. All of them hang on sessions, which a thread renews.
"""
