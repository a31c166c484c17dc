use std::collections::HashMap;

use super::{SENTINELS, Sentinels, builder::SentinelsBuilder};
use crate::{
    error::SpawnError,
    launch::Mode,
    peer::{Peer, sources},
};

/// The fields of a record in a server's answer.
type Fields = HashMap<String, String>;

/// The statements of the processes about each other.
impl Sentinels {
    /// Starts the servers. The first one is the master.
    pub(super) fn spawn_servers(builder: &SentinelsBuilder) -> Result<Self, SpawnError> {
        let mut group = Self {
            servers: Vec::new(),
            sentinels: Vec::new(),
            password: builder.password.clone(),
            sentinel_password: builder.sentinel_password.clone(),
        };
        let sources = sources(1 + builder.replicas + SENTINELS);
        for number in 0..=builder.replicas {
            let mode = |announced, _| group.server_mode(announced);
            let server = Peer::spawn(number, &sources, false, mode)?;
            group.servers.push(server);
        }
        Ok(group)
    }

    pub(super) fn spawn_sentinels(&mut self, builder: &SentinelsBuilder) -> Result<(), SpawnError> {
        let sources = sources(self.servers.len() + SENTINELS);
        for number in 0..SENTINELS {
            let mode = |announced, _| self.sentinel_mode(announced, builder);
            let sentinel = Peer::spawn(self.servers.len() + number, &sources, false, mode)?;
            self.sentinels.push(sentinel);
        }
        Ok(())
    }

    fn server_mode(&self, announced: u16) -> Mode {
        let mut arguments =
            format!("--replica-announce-ip 127.0.0.1 --replica-announce-port {announced}");
        if let Some(master) = self.servers.first() {
            let port = master.address().port();
            arguments += &format!(" --replicaof 127.0.0.1 {port}");
        }
        Mode::of_group(&arguments, self.password.as_deref())
    }

    fn sentinel_mode(&self, announced: u16, builder: &SentinelsBuilder) -> Mode {
        let name = Self::NAME;
        let master = self.servers[0].address().port();
        let quorum = SENTINELS / 2 + 1;
        let down_after = builder.down_after.as_millis();
        let failover_timeout = builder.failover_timeout.as_millis();
        let replicas = builder.replicas.max(1);
        let mut lines = vec![
            format!("sentinel monitor {name} 127.0.0.1 {master} {quorum}"),
            format!("sentinel down-after-milliseconds {name} {down_after}"),
            format!("sentinel failover-timeout {name} {failover_timeout}"),
            format!("sentinel parallel-syncs {name} {replicas}"),
            "sentinel announce-ip 127.0.0.1".into(),
            format!("sentinel announce-port {announced}"),
        ];
        if let Some(password) = &self.password {
            lines.push(format!("sentinel auth-pass {name} {password}"));
        }
        if let Some(password) = &self.sentinel_password {
            lines.push(format!("requirepass {password}"));
            lines.push(format!("sentinel sentinel-pass {password}"));
        }
        Mode::Sentinel(lines)
    }

    /// Returns which master each sentinel names, in words.
    pub(super) fn opinions(&self) -> String {
        let opinion = |sentinel: &Peer| match self.port_named_by(sentinel) {
            Ok(port) => format!("{:?}", self.server_at(port)),
            Err(error) => error,
        };
        let opinions: Vec<_> = self.sentinels.iter().map(opinion).collect();
        format!("the sentinels name {}", opinions.join(", "))
    }

    /// Returns the master, or why the processes do not agree yet.
    pub(super) fn settled(&self) -> Result<usize, String> {
        let master = self.master().ok_or_else(|| self.opinions())?;
        for number in 0..self.servers.len() {
            self.check_server(number, master)?;
        }
        for (number, sentinel) in self.sentinels.iter().enumerate() {
            self.check_sentinel(sentinel, master)
                .map_err(|state| format!("sentinel {number}: {state}"))?;
        }
        Ok(master)
    }

    /// Checks that a server is a master, or a replica of this master with its data.
    pub(super) fn check_server(&self, number: usize, master: usize) -> Result<(), String> {
        let server = self.servers[number].commands(self.password.as_deref());
        let text: String = server.ask(&["INFO", "replication"])?;
        let port = self.servers[master].address().port().to_string();
        let expected: &[_] = if number == master {
            &[("role", "master")]
        } else {
            &[
                ("role", "slave"),
                ("master_port", &port),
                ("master_link_status", "up"),
                ("master_sync_in_progress", "0"),
            ]
        };
        let fields = text.lines().filter_map(|it| it.trim().split_once(':'));
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let fields = Fields::from_iter(fields);
        let mut expected = expected.iter();
        let all = expected.try_for_each(|(name, value)| check(&fields, name, value));
        all.map_err(|state| format!("server {number}: {state}"))
    }

    fn check_sentinel(&self, sentinel: &Peer, master: usize) -> Result<(), String> {
        let commands = sentinel.commands(self.sentinel_password.as_deref());
        let own: Fields = commands.ask(&["SENTINEL", "MASTER", Self::NAME])?;
        let port = self.servers[master].address().port().to_string();
        check_is_up(&own)?;
        check(&own, "port", &port)?;
        let replicas: Vec<Fields> = commands.ask(&["SENTINEL", "SLAVES", Self::NAME])?;
        let others: Vec<Fields> = commands.ask(&["SENTINEL", "SENTINELS", Self::NAME])?;
        check_count("replicas", replicas.len(), self.servers.len() - 1)?;
        check_count("sentinels", others.len(), self.sentinels.len() - 1)?;
        for replica in &replicas {
            check_is_up(replica)?;
            check(replica, "master-port", &port)?;
            check(replica, "master-link-status", "ok")?;
        }
        others.iter().try_for_each(check_is_up)
    }

    pub(super) fn port_named_by(&self, sentinel: &Peer) -> Result<u16, String> {
        let commands = sentinel.commands(self.sentinel_password.as_deref());
        let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::NAME];
        let (_, port): (String, u16) = commands.ask(&question)?;
        Ok(port)
    }

    /// Returns the number of the server that announces this port.
    fn server_at(&self, port: u16) -> Option<usize> {
        let mut servers = self.servers.iter();
        servers.position(|it| it.address().port() == port)
    }
}

fn check(fields: &Fields, name: &str, expected: &str) -> Result<(), String> {
    match fields.get(name) {
        Some(value) if value == expected => Ok(()),
        value => Err(format!("{name} is {value:?}, not {expected}")),
    }
}

fn check_is_up(fields: &Fields) -> Result<(), String> {
    const TROUBLE: &[&str] = &["s_down", "o_down", "disconnected", "failover_in_progress"];
    let flags = fields.get("flags").map_or("", String::as_str);
    if flags.split(',').any(|it| TROUBLE.contains(&it)) {
        return Err(format!("{:?} is {flags}", fields.get("name")));
    }
    Ok(())
}

fn check_count(what: &str, count: usize, expected: usize) -> Result<(), String> {
    if count == expected {
        Ok(())
    } else {
        Err(format!("{count} {what}, not {expected}"))
    }
}
