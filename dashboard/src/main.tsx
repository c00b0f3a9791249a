import './policy';
import { createRoot } from 'react-dom/client';
import { App } from './app/App';
import './styles/base.css';
import './styles/list.css';
import './styles/conversation.css';
import './styles/content.css';
import './styles/player.css';

const root = document.getElementById('root');
if (root) createRoot(root).render(<App />);
