//! The Unix socket of a router's control processor: claimed, and given back.
//!
//! A socket file stays behind when its process is killed, and it looks like that of a live one. So
//! the path is taken under a lock beside it (`lock`): a socket that answers is alive and left alone,
//! one of ours that does not is replaced, and anything else is another program's file. The socket is
//! made in a directory that only its owner can enter and moved when its mode is 0600, so that there
//! is no moment at which another could connect.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::geteuid;

use super::lock::Lock;

/// A socket that is ours until this value goes.
#[derive(Debug)]
pub struct Claimed {
    path: PathBuf,
    inode: (u64, u64),
}

impl Claimed {
    /// Listens at `path`.
    ///
    /// # Errors
    /// When a router listens there, the place is taken by something else, or it cannot be written.
    pub fn listen(path: &Path) -> Result<(UnixListener, Claimed)> {
        let shown = path.display();
        let folder = match path.parent() {
            Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
            Some(folder) => folder,
            None => bail!("{shown} is not a place for a socket"),
        };
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.with_context(|| format!("{shown} is not a place for a socket"))?;
        let _lock = Lock::take(folder, name)?;
        make_room(path)?;
        let yard = folder.join(format!(".nilometer-{}", std::process::id()));
        DirBuilder::new()
            .mode(0o700)
            .create(&yard)
            .with_context(|| format!("cannot make {shown}"))?;
        let made = in_yard(&yard.join("s"), path);
        let _ = fs::remove_dir_all(&yard);
        let listener = made.with_context(|| format!("cannot make the socket {shown}"))?;
        let about = fs::symlink_metadata(path).with_context(|| format!("{shown} is gone again"))?;
        let inode = (about.dev(), about.ino());
        Ok((listener, Claimed { path: path.to_owned(), inode }))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let about = fs::symlink_metadata(&self.path);
        if about.is_ok_and(|about| (about.dev(), about.ino()) == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn in_yard(temporary: &Path, path: &Path) -> std::io::Result<UnixListener> {
    let listener = UnixListener::bind(temporary)?;
    fs::set_permissions(temporary, fs::Permissions::from_mode(0o600))?;
    fs::rename(temporary, path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Removes what a killed router left at `path`.
fn make_room(path: &Path) -> Result<()> {
    let shown = path.display();
    let about = match fs::symlink_metadata(path) {
        Ok(about) => about,
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(why).with_context(|| format!("cannot look at {shown}")),
    };
    ensure!(about.file_type().is_socket(), "{shown} is a file and no socket; it is left alone");
    let own = geteuid().as_raw();
    ensure!(about.uid() == own, "{shown} is a socket of another user; it is left alone");
    match UnixStream::connect(path) {
        Err(why) if why.kind() == ErrorKind::ConnectionRefused => {
            fs::remove_file(path).with_context(|| format!("cannot replace {shown}"))
        }
        Ok(_) => {
            bail!("another process listens at {shown}, most likely a router; give another socket")
        }
        Err(why) => {
            Err(why).with_context(|| format!("cannot determine which process listens at {shown}"))
        }
    }
}

/// The directory of sockets where none is given, which only the user that runs routers can use:
/// `$XDG_RUNTIME_DIR/nilometer`, or `/run/nilometer` for root.
pub fn usual_folder() -> Option<PathBuf> {
    let runtime_dir =
        std::env::var_os("XDG_RUNTIME_DIR").filter(|runtime_dir| !runtime_dir.is_empty());
    let root = || geteuid().is_root().then(|| PathBuf::from("/run"));
    runtime_dir.map(PathBuf::from).or_else(root).map(|folder| folder.join("nilometer"))
}

/// The usual place of the router called `name`; its directory is made.
///
/// # Errors
/// When there is no such directory, or it belongs to another.
pub fn usual_place(name: &str) -> Result<PathBuf> {
    let folder = usual_folder().context("XDG_RUNTIME_DIR is not set")?;
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(why) if why.kind() != ErrorKind::AlreadyExists => {
            return Err(why).with_context(|| format!("cannot make {}", folder.display()));
        }
        _ => {}
    }
    let about = fs::symlink_metadata(&folder)?;
    let is_ours = about.is_dir() && about.uid() == geteuid().as_raw();
    ensure!(is_ours, "{} is not a directory of ours", folder.display());
    let is_closed = about.mode() & 0o022 == 0;
    ensure!(is_closed, "others can write in {}; chmod 700 it", folder.display());
    Ok(folder.join(format!("{name}.sock")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_socket_of_a_killed_router_is_replaced() {
        let folder = std::env::temp_dir().join(format!("nilometer-claim-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("router.sock");
        let refusal = |path: &Path| format!("{:#}", Claimed::listen(path).expect_err("refused"));
        let (listener, claimed) = Claimed::listen(&path).expect("the socket is free");
        let mode = fs::symlink_metadata(&path).expect("it is there").mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(refusal(&path).contains("another process listens"));
        // As after SIGKILL: no process listens, and the file stays.
        drop(listener);
        std::mem::forget(claimed);
        assert!(path.exists());
        let (_listener, claimed) = Claimed::listen(&path).expect("no process listens");
        drop(claimed);
        assert!(!path.exists());
        fs::write(&path, b"mine").expect("written");
        assert!(refusal(&path).contains("no socket"));
        assert_eq!(fs::read(&path).expect("still there"), b"mine");
        // A link to a socket is not followed.
        let link = folder.join("link.sock");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        assert!(refusal(&link).contains("no socket"));
        assert!(refusal(&folder.join("none/router.sock")).contains("cannot open"));
        fs::remove_dir_all(&folder).expect("removed");
    }
}
