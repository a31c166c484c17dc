use std::{
    io::{self, BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// A process that works until it is dismissed, and reports in lines.
///
/// It is dismissed when its standard input ends, which also happens when the process dies that started it. Dropping
/// the worker kills the process.
#[derive(Debug)]
pub struct Worker {
    process: Child,
    /// The standard input of the process.
    leash: Option<ChildStdin>,
}

impl Worker {
    /// Starts a program. Each line of its standard output goes to `hear`, on a thread of its own, and then `None` when
    /// the output has ended.
    ///
    /// # Errors
    ///
    /// Fails if the program does not start.
    pub fn start(
        program: &mut Command,
        mut hear: impl FnMut(Option<String>) + Send + 'static,
    ) -> io::Result<Self> {
        let program = program.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = program.spawn()?;
        let leash = process.stdin.take();
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                hear(Some(line));
            }
            hear(None);
        });
        Ok(Self { process, leash })
    }

    /// Returns the process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Writes a line to the standard input of the process.
    ///
    /// # Errors
    ///
    /// Fails if the process was dismissed or has ended.
    pub fn tell(&mut self, line: &str) -> io::Result<()> {
        let leash = self.leash.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(leash, "{line}")
    }

    /// Freezes the process (`SIGSTOP`). Returns when it stands still or has ended.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        let process = WaitId::Pid(Pid::from_child(&self.process));
        // The end of the process can still be waited for afterwards.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        // This fails for a process that has ended and was waited for.
        let _ = waitid(process, options);
    }

    /// Continues a frozen process (`SIGCONT`).
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Lets the process end.
    pub fn dismiss(&mut self) {
        drop(self.leash.take());
    }

    /// Waits for the end of the process, but no longer than this. Returns `None` if it has not ended then.
    ///
    /// # Errors
    ///
    /// Fails if the system does not tell.
    pub fn end(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        loop {
            match self.process.try_wait()? {
                None if Instant::now() < deadline => thread::sleep(Duration::from_millis(10)),
                status => return Ok(status),
            }
        }
    }

    /// Kills the process at once (`SIGKILL`), and waits for its end.
    pub fn kill(&mut self) {
        // Both fail for a process that has ended and was waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    fn signal(&self, signal: Signal) {
        // This fails for a process that has ended and was waited for.
        let _ = kill_process(Pid::from_child(&self.process), signal);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}
